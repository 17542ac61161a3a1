<?php
// Symfony Messenger of the system's packages: its transport by streams.
require __DIR__ . '/cases.php';
require_once '/usr/share/php/Symfony/Component/Messenger/autoload.php';
require_once '/usr/share/php/Symfony/Component/Messenger/Bridge/Redis/autoload.php';

use Symfony\Component\Messenger\Bridge\Redis\Transport\Connection;

function connection(string $consumer): Connection
{
    return Connection::fromDsn('redis://127.0.0.1:' . PORT . "/jobs/group/$consumer",
        ['delete_after_ack' => true, 'auto_setup' => true]);
}

function take(Connection $from): ?string
{
    $message = $from->get();
    if ($message === null || !isset($message['data'])) {
        return null;
    }
    $from->ack($message['id']);
    $data = $message['data'];
    return is_array($data) ? json_decode($data['message'], true)['body'] : $data;
}

test('jobs', function () {
    [$one, $two, $found] = [connection('one'), connection('two'), []];
    for ($n = 0; $n < JOBS; $n++) {
        $one->add((string) $n, []);
        if ($n === JOBS / 4) {
            echo "kill\n";
        }
        if ($n % 2) {
            foreach ([$one, $two] as $from) {
                if (($body = take($from)) !== null) {
                    $found[] = $body;
                }
            }
        }
    }
    until('all jobs', function () use ($one, $two, &$found) {
        foreach ([$one, $two] as $from) {
            if (($body = take($from)) !== null) {
                $found[] = $body;
            }
        }
        return count(array_unique($found)) === JOBS;
    });
    echo 'jobs ' . JOBS . ' ' . JOBS . ' ' . (count($found) - JOBS) . "\n";
});
test('delayed', function () {
    $one = connection('one');
    $one->add('late', [], 500);
    equal(take($one), null);
    until('the job', fn () => take($one) === 'late');
});
