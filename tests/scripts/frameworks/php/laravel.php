<?php
// Laravel of the system's packages: its queue with two worker processes, cache tags, locks, limits.
require __DIR__ . '/cases.php';
foreach (['Redis', 'Queue', 'Cache', 'Container', 'Events', 'Support', 'Bus'] as $part) {
    require_once "/usr/share/php/Illuminate/$part/autoload.php";
}

use Illuminate\Cache\RedisStore;
use Illuminate\Cache\Repository;
use Illuminate\Container\Container;
use Illuminate\Queue\RedisQueue;
use Illuminate\Redis\RedisManager;

function redis(): RedisManager
{
    return new RedisManager(new Container(), 'phpredis', [
        'options' => ['prefix' => 'app:'],
        'default' => ['host' => '127.0.0.1', 'port' => PORT, 'database' => 0],
    ]);
}

// Laravel's documentation asks for braces around a queue's name on Redis Cluster.
const NAME = '{default}';

function queue(?int $block = 1): RedisQueue
{
    $queue = new RedisQueue(redis(), NAME, 'default', 60, $block);
    $queue->setContainer(new Container());
    return $queue;
}

function work(): void
{
    $queue = queue();
    while (true) {
        $job = $queue->pop(NAME);
        if ($job === null) {
            continue;
        }
        $n = $job->payload()['data']['n'];
        if ($n === 5000 && $job->attempts() < 3) {
            $job->release(0);
            continue;
        }
        usleep(10000);
        file_put_contents(MARKS, "$n\n", FILE_APPEND);
        $job->delete();
    }
}

if (($argv[1] ?? '') === 'worker') {
    work();
}
$log = ['file', getenv('DIR') . '/worker.log', 'a'];
$workers = [];
for ($n = 0; $n < 2; $n++) {
    $workers[] = proc_open([PHP_BINARY, __FILE__, 'worker'], [1 => $log, 2 => $log], $pipes);
}
$queue = queue();
test('jobs', function () use ($queue) {
    for ($n = 0; $n < JOBS / 2; $n++) {
        $queue->push('leave', ['n' => $n]);
    }
    until('a quarter of the jobs', fn () => count(array_unique(marks())) >= JOBS / 4);
    echo "kill\n";
    for ($n = JOBS / 2; $n < JOBS; $n++) {
        $queue->push('leave', ['n' => $n]);
    }
    try {
        until('all jobs', fn () => count(array_unique(marks())) === JOBS);
    } finally {
        $all = marks();
        $different = count(array_unique($all));
        echo 'jobs ' . JOBS . " $different " . (count($all) - $different) . "\n";
    }
});
test('later', function () use ($queue) {
    $queue->later(1, 'leave', ['n' => 1000]);
    until('the job', fn () => in_array('1000', marks()));
});
test('release', function () use ($queue) {
    $queue->push('leave', ['n' => 5000]);
    until('the job', fn () => in_array('5000', marks()));
});
test('bulk', function () use ($queue) {
    $queue->bulk(['leave', 'leave'], ['n' => 2000]);
    until('both', fn () => count(array_keys(marks(), '2000')) === 2);
});
test('size', fn () => until('an empty queue', fn () => $queue->size(NAME) === 0));
test('clear', function () use ($queue) {
    $queue->later(1000, 'leave', ['n' => 1]);
    equal($queue->clear(NAME), 1);
});
$cache = new Repository(new RedisStore(redis(), 'cache:', 'default'));
test('tags', function () use ($cache) {
    $cache->tags(['people', 'artists'])->put('John', 1, 60);
    $cache->tags(['people', 'authors'])->put('Anne', 2, 60);
    $cache->tags(['people'])->forever('All', 3);
    equal($cache->tags(['people', 'artists'])->get('John'), '1');
    $cache->tags('authors')->flush();
    equal($cache->tags(['people', 'artists'])->get('John'), '1');
    equal($cache->tags(['people', 'authors'])->get('Anne'), null);
    $cache->tags('people')->flush();
    equal($cache->tags(['people', 'artists'])->get('John'), null);
});
test('locks', function () use ($cache) {
    $lock = $cache->lock('it', 10);
    equal([$lock->get(), $cache->lock('it', 10)->get(), $lock->release()], [true, false, true]);
});
test('funnel', function () {
    $ran = 0;
    redis()->connection()->funnel('{funnel}')->limit(2)->then(function () use (&$ran) { $ran++; });
    equal($ran, 1);
});
test('throttle', function () {
    $ran = 0;
    for ($n = 0; $n < 4; $n++) {
        redis()->connection()->throttle('throttle')->allow(2)->every(60)->block(0)->then(
            function () use (&$ran) { $ran++; }, fn () => null);
    }
    equal($ran, 2);
});
foreach ($workers as $worker) {
    proc_terminate($worker, 9);
}
