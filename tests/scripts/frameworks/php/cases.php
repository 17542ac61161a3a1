<?php
// What the PHP programs share.
const JOBS = 300;
define('PORT', (int) getenv('REDIS_PORT'));
define('MARKS', getenv('DIR') . '/marks');

function test(string $name, callable $body): void
{
    try {
        $body();
        echo "case $name ok\n";
    } catch (Throwable $error) {
        fwrite(STDERR, "$error\n");
        $text = get_class($error) . ': ' . preg_replace('/\s+/', ' ', $error->getMessage());
        echo "case $name failed " . substr($text, 0, 300) . "\n";
    }
}

function equal($found, $expected): void
{
    if ($found !== $expected) {
        $texts = [json_encode($found), json_encode($expected)];
        throw new Exception("found $texts[0] instead of $texts[1]");
    }
}

function marks(): array
{
    return is_file(MARKS) ? file(MARKS, FILE_IGNORE_NEW_LINES) : [];
}

function until(string $what, callable $isTrue, float $seconds = 40): void
{
    for ($end = microtime(true) + $seconds; !$isTrue(); usleep(50000)) {
        if (microtime(true) > $end) {
            throw new Exception("$what: not within $seconds s");
        }
    }
}
