# Owns: the way from a generation's options to the struct that crosses the ring. Made on the event loop, then only read.
from libc.stdint cimport int32_t, uint32_t
from libc.string cimport memcpy, memset

from cpython.bytes cimport PyBytes_AS_STRING

from llamad.base.function_table cimport LLAMAD_SAMPLERS_MAX, llamad_sampling


cdef class Sampling:
    """A task's sampling parameters, packed once into the struct that crosses the ring."""

    def __cinit__(self, bytes samplers, options, uint32_t seed, int32_t newline_token=-1,
                  int32_t end_token=-1):
        """`samplers` are the kinds of the chain; `options` has the attributes of llamad.options.table.Options."""
        memset(&self.values, 0, sizeof(llamad_sampling))
        if len(samplers) > LLAMAD_SAMPLERS_MAX:
            raise ValueError(f"at most {LLAMAD_SAMPLERS_MAX} samplers")
        self.values.n_samplers = <int32_t>len(samplers)
        memcpy(self.values.samplers, PyBytes_AS_STRING(samplers), <size_t>len(samplers))
        self.values.seed = seed
        self.values.newline_token = newline_token
        self.values.end_token = end_token
        self.values.top_k = options.top_k
        self.values.top_p = options.top_p
        self.values.min_p = options.min_p
        self.values.typical_p = options.typical_p
        self.values.tfs_z = options.tfs_z
        self.values.top_n_sigma = options.top_n_sigma
        self.values.temperature = options.temperature
        self.values.dynatemp_range = options.dynatemp_range
        self.values.dynatemp_exponent = options.dynatemp_exponent
        self.values.xtc_probability = options.xtc_probability
        self.values.xtc_threshold = options.xtc_threshold
        self.values.repeat_last_n = options.repeat_last_n
        self.values.repeat_penalty = options.repeat_penalty
        self.values.presence_penalty = options.presence_penalty
        self.values.frequency_penalty = options.frequency_penalty
        self.values.dry_multiplier = options.dry_multiplier
        self.values.dry_base = options.dry_base
        self.values.dry_allowed_length = options.dry_allowed_length
        self.values.dry_penalty_last_n = options.dry_penalty_last_n
        self.values.mirostat = options.mirostat
        self.values.mirostat_tau = options.mirostat_tau
        self.values.mirostat_eta = options.mirostat_eta
        self.values.adaptive_target = options.adaptive_target
        self.values.adaptive_decay = options.adaptive_decay
        self.values.min_keep = options.min_keep
        self.values.penalize_nl = options.penalize_nl
