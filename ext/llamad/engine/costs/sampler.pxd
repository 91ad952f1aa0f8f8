# The constants of costs/sampler.h for Cython.
cdef extern from "llamad/engine/costs/sampler.h":
    enum:
        ARRIVAL_LEAD_US
        ARRIVAL_SPIN_US
        PREFILL_LEAD_PART
        PREFILL_LEAD_US_MAX
        BUS_BYTES_PER_US
        STEADY_US
        ALERT_STEP_US_MAX
        SPINS_BEFORE_YIELD
        ALERT_SPIN_US
        GRAMMAR_STEP_WORK
        GRAMMAR_ALONE_WORK
        GRAMMAR_NICENESS
        TOPK_MAX
        TOPK_COLLECT_MAX
        INSERTION_SORT_MAX
        UNDO_MAX
