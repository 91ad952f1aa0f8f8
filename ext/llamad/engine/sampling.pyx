# Owns: the way from named parameters to the struct that crosses the ring. Made on the event loop, then only read.
from libc.stdint cimport int32_t
from libc.string cimport memcpy, memset

from cpython.bytes cimport PyBytes_AS_STRING

from llamad.engine.table cimport LLAMAD_SAMPLERS_MAX, llamad_sampling


cdef class Sampling:
    """A task's sampling parameters, packed once into the struct that crosses the ring."""

    def __cinit__(self, samplers: bytes, **values: object) -> None:
        memset(&self.values, 0, sizeof(llamad_sampling))
        if len(samplers) > LLAMAD_SAMPLERS_MAX:
            raise ValueError(f"at most {LLAMAD_SAMPLERS_MAX} samplers")
        self.values.n_samplers = <int32_t>len(samplers)
        memcpy(self.values.samplers, PyBytes_AS_STRING(samplers), <size_t>len(samplers))
        self.values.seed = values.pop("seed")
        self.values.top_k = values.pop("top_k")
        self.values.top_p = values.pop("top_p")
        self.values.min_p = values.pop("min_p")
        self.values.typical_p = values.pop("typical_p")
        self.values.tfs_z = values.pop("tfs_z")
        self.values.top_n_sigma = values.pop("top_n_sigma")
        self.values.temperature = values.pop("temperature")
        self.values.dynatemp_range = values.pop("dynatemp_range")
        self.values.dynatemp_exponent = values.pop("dynatemp_exponent")
        self.values.xtc_probability = values.pop("xtc_probability")
        self.values.xtc_threshold = values.pop("xtc_threshold")
        self.values.repeat_last_n = values.pop("repeat_last_n")
        self.values.repeat_penalty = values.pop("repeat_penalty")
        self.values.presence_penalty = values.pop("presence_penalty")
        self.values.frequency_penalty = values.pop("frequency_penalty")
        self.values.dry_multiplier = values.pop("dry_multiplier")
        self.values.dry_base = values.pop("dry_base")
        self.values.dry_allowed_length = values.pop("dry_allowed_length")
        self.values.dry_penalty_last_n = values.pop("dry_penalty_last_n")
        self.values.mirostat = values.pop("mirostat")
        self.values.mirostat_tau = values.pop("mirostat_tau")
        self.values.mirostat_eta = values.pop("mirostat_eta")
        self.values.min_keep = values.pop("min_keep")
        self.values.penalize_nl = values.pop("penalize_nl", False)
        self.values.newline_token = values.pop("newline_token", -1)
        if values:
            raise TypeError(f"unknown sampling parameters: {sorted(values)}")
