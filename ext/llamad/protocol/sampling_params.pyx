# Owns: the way from named parameters to the struct that crosses the ring. Made on the event loop, then only read.
from libc.stdint cimport int32_t, uint32_t
from libc.string cimport memcpy, memset

from cpython.bytes cimport PyBytes_AS_STRING

from llamad.base.table cimport LLAMAD_SAMPLERS_MAX, llamad_sampling


cdef class Sampling:
    """A task's sampling parameters, packed once into the struct that crosses the ring."""

    def __cinit__(
        self, bytes samplers, *,
        uint32_t seed, int32_t top_k, float top_p, float min_p, float typical_p, float tfs_z,
        float top_n_sigma, float temperature, float dynatemp_range, float dynatemp_exponent,
        float xtc_probability, float xtc_threshold, int32_t repeat_last_n, float repeat_penalty,
        float presence_penalty, float frequency_penalty, float dry_multiplier, float dry_base,
        int32_t dry_allowed_length, int32_t dry_penalty_last_n, int32_t mirostat, float mirostat_tau,
        float mirostat_eta, int32_t min_keep, bint penalize_nl=False, int32_t newline_token=-1
    ):
        memset(&self.values, 0, sizeof(llamad_sampling))
        if len(samplers) > LLAMAD_SAMPLERS_MAX:
            raise ValueError(f"at most {LLAMAD_SAMPLERS_MAX} samplers")
        self.values.n_samplers = <int32_t>len(samplers)
        memcpy(self.values.samplers, PyBytes_AS_STRING(samplers), <size_t>len(samplers))
        self.values.seed = seed
        self.values.top_k = top_k
        self.values.top_p = top_p
        self.values.min_p = min_p
        self.values.typical_p = typical_p
        self.values.tfs_z = tfs_z
        self.values.top_n_sigma = top_n_sigma
        self.values.temperature = temperature
        self.values.dynatemp_range = dynatemp_range
        self.values.dynatemp_exponent = dynatemp_exponent
        self.values.xtc_probability = xtc_probability
        self.values.xtc_threshold = xtc_threshold
        self.values.repeat_last_n = repeat_last_n
        self.values.repeat_penalty = repeat_penalty
        self.values.presence_penalty = presence_penalty
        self.values.frequency_penalty = frequency_penalty
        self.values.dry_multiplier = dry_multiplier
        self.values.dry_base = dry_base
        self.values.dry_allowed_length = dry_allowed_length
        self.values.dry_penalty_last_n = dry_penalty_last_n
        self.values.mirostat = mirostat
        self.values.mirostat_tau = mirostat_tau
        self.values.mirostat_eta = mirostat_eta
        self.values.min_keep = min_keep
        self.values.penalize_nl = penalize_nl
        self.values.newline_token = newline_token
