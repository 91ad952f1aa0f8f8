# Owns: the way from a generation's options to the struct that crosses the ring. Made on the event loop, then only read.
from libc.stdint cimport int32_t, uint32_t
from libc.string cimport memset

from llamad.base.function_table cimport (
    LLAMAD_SAMPLER_ADAPTIVE_P, LLAMAD_SAMPLER_DRY, LLAMAD_SAMPLER_INFILL, LLAMAD_SAMPLER_MIN_P, LLAMAD_SAMPLER_PENALTIES,
    LLAMAD_SAMPLER_TEMPERATURE, LLAMAD_SAMPLER_TFS_Z, LLAMAD_SAMPLER_TOP_K, LLAMAD_SAMPLER_TOP_N_SIGMA,
    LLAMAD_SAMPLER_TOP_P, LLAMAD_SAMPLER_TYPICAL, LLAMAD_SAMPLER_XTC, LLAMAD_SAMPLERS_MAX, llamad_sampling,
)

# By their names in options/sampler_names.py.
cdef dict _KINDS = {
    "penalties": LLAMAD_SAMPLER_PENALTIES,
    "dry": LLAMAD_SAMPLER_DRY,
    "top_n_sigma": LLAMAD_SAMPLER_TOP_N_SIGMA,
    "top_k": LLAMAD_SAMPLER_TOP_K,
    "typ_p": LLAMAD_SAMPLER_TYPICAL,
    "top_p": LLAMAD_SAMPLER_TOP_P,
    "min_p": LLAMAD_SAMPLER_MIN_P,
    "xtc": LLAMAD_SAMPLER_XTC,
    "temperature": LLAMAD_SAMPLER_TEMPERATURE,
    "tfs_z": LLAMAD_SAMPLER_TFS_Z,
    "infill": LLAMAD_SAMPLER_INFILL,
    "adaptive_p": LLAMAD_SAMPLER_ADAPTIVE_P,
}


cdef class Sampling:
    """A task's sampling parameters, packed once into the struct that crosses the ring."""

    def __cinit__(self, samplers, options, uint32_t seed, int32_t newline_token=-1,
                  int32_t end_token=-1):
        """`samplers` are the names of the chain; `options` has the attributes of llamad.options.table.Options."""
        memset(&self.values, 0, sizeof(llamad_sampling))
        if len(samplers) > LLAMAD_SAMPLERS_MAX:
            raise ValueError(f"at most {LLAMAD_SAMPLERS_MAX} samplers")
        for name in samplers:
            self.values.samplers[self.values.n_samplers] = _KINDS[name]
            self.values.n_samplers += 1
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
