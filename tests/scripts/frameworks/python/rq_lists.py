"""RQ 1.11, the last one that needs no streams: two worker processes."""
# needs: rq==1.11.1 redis==4.6.0 setuptools==75.8.0

import rq_cases

rq_cases.main()
