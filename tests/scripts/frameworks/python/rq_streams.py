"""RQ 2, which keeps results in streams: two worker processes."""
# needs: rq==2.12.0

import rq_cases

rq_cases.main()
