# Owns: the way from a generation's options to the struct that crosses the ring: a field gets the option of its name. Made
# on the event loop, then only read.
from llamad.base.function_table cimport (
    LLAMAD_SAMPLER_ADAPTIVE_P, LLAMAD_SAMPLER_DRY, LLAMAD_SAMPLER_INFILL, LLAMAD_SAMPLER_MIN_P, LLAMAD_SAMPLER_PENALTIES,
    LLAMAD_SAMPLER_TEMPERATURE, LLAMAD_SAMPLER_TFS_Z, LLAMAD_SAMPLER_TOP_K, LLAMAD_SAMPLER_TOP_N_SIGMA,
    LLAMAD_SAMPLER_TOP_P, LLAMAD_SAMPLER_TYPICAL, LLAMAD_SAMPLER_XTC, LLAMAD_SAMPLERS_MAX,
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


cdef class ByName:
    """The attributes of `options` as a mapping, below the entries of `others`: Cython fills a C struct from a mapping,
    each field by its name."""

    def __cinit__(self, options, dict others):
        self.options = options
        self.others = others

    def __getitem__(self, name):
        return self.others[name] if name in self.others else getattr(self.options, name)


cdef class Sampling:
    """A task's sampling parameters, packed once into the struct that crosses the ring."""

    def __cinit__(self, samplers, options, seed, newline_token=-1, end_token=-1):
        """`samplers` are the names of the chain; `options` has the attributes of options/sampling_table.py."""
        kinds = bytes([_KINDS[name] for name in samplers])
        if len(kinds) > LLAMAD_SAMPLERS_MAX:
            raise ValueError(f"at most {LLAMAD_SAMPLERS_MAX} samplers")
        self.values = ByName(options, {
            "seed": seed, "newline_token": newline_token, "end_token": end_token, "n_samplers": len(kinds),
            "samplers": kinds.ljust(LLAMAD_SAMPLERS_MAX, b"\0"),
        })
