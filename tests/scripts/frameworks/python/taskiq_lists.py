"""taskiq with the list broker and the result backend: two worker processes."""
# needs: taskiq==0.13.0 taskiq-redis==1.2.4

import taskiq_cases
from taskiq_redis import ListQueueBroker, RedisAsyncResultBackend
from cases import URL

broker = ListQueueBroker(url=URL).with_result_backend(RedisAsyncResultBackend(redis_url=URL))
leave, add = taskiq_cases.tasks(broker)

if __name__ == "__main__":
    taskiq_cases.main("taskiq_lists:broker", broker, leave, add)
