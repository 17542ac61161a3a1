<?php
// Symfony of the system's packages: caches with tags, and locks.
require __DIR__ . '/cases.php';
foreach (['Cache', 'Lock'] as $part) {
    require_once "/usr/share/php/Symfony/Component/$part/autoload.php";
}

use Symfony\Component\Cache\Adapter\RedisAdapter;
use Symfony\Component\Cache\Adapter\RedisTagAwareAdapter;
use Symfony\Component\Cache\Adapter\TagAwareAdapter;
use Symfony\Component\Lock\Key;
use Symfony\Component\Lock\LockFactory;
use Symfony\Component\Lock\Store\RedisStore;

function redis(): Redis
{
    $redis = new Redis();
    $redis->connect('127.0.0.1', PORT);
    return $redis;
}

function tags($cache): void
{
    for ($n = 0; $n < 100; $n++) {
        $item = $cache->getItem("item$n")->set($n)->tag(['all', $n % 2 ? 'odd' : 'even']);
        equal($cache->save($item), true);
        if ($n === 30) {
            echo "kill\n";
        }
    }
    equal($cache->getItem('item7')->get(), 7);
    equal($cache->invalidateTags(['odd']), true);
    equal([$cache->getItem('item7')->isHit(), $cache->getItem('item8')->isHit()], [false, true]);
    equal($cache->deleteItems(['item8', 'item10']), true);
    equal($cache->invalidateTags(['all']), true);
    equal($cache->getItem('item2')->isHit(), false);
}

test('cache', function () {
    $cache = new RedisAdapter(redis(), 'plain');
    equal($cache->get('a', fn () => 7), 7);
    equal($cache->get('a', fn () => 8), 7);
    equal($cache->clear(), true);
});
test('tags', fn () => tags(new TagAwareAdapter(new RedisAdapter(redis(), 'two'))));
test('redis-tags', fn () => tags(new RedisTagAwareAdapter(redis(), 'one')));
$locks = new LockFactory(new RedisStore(redis()));
test('locks', function () use ($locks) {
    $one = $locks->createLock('it', 10);
    equal([$one->acquire(), $locks->createLock('it', 10)->acquire()], [true, false]);
    $one->refresh(20);
    equal($one->isAcquired(), true);
    $one->release();
    equal($locks->createLock('it', 10)->acquire(), true);
});
test('shared-locks', function () use ($locks) {
    $one = $locks->createLock('shared', 10);
    $other = $locks->createLock('shared', 10);
    equal([$one->acquireRead(), $other->acquireRead()], [true, true]);
    equal($locks->createLock('shared', 10)->acquire(), false);
    $other->release();
    equal($one->acquire(), true);
});
