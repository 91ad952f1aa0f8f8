# Read by CMake inside ggml's project (CMAKE_PROJECT_ggml_INCLUDE), so that a fault of the compiler can be kept
# away from llama.cpp without touching its sources. Each header says which fault it is.
add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,GNU>:SHELL:-include ${CMAKE_CURRENT_LIST_DIR}/tile_config.h>")

# With GGML_CPU_ALL_VARIANTS, ggml has CPU backends that not every compiler can build: GCC before 14 does not know ARM's
# SME. Those are left out; with LLAMAD_CPU_VARIANTS, all but the named ones, such as "x64;haswell;zen4". Nothing depends
# on them any more, so Ninja does not build them.
#
# Those with AVX-512 are tuned for the CPU that they are named after, if the compiler knows it (zen4: GCC from 12.3). Else
# GCC uses vectors of 512 bits in every loop, which are slower than those of 256 bits on many of these CPUs: on a Cascade
# Lake, prompts were read at 0.94 of a native build's speed, and at 0.99 with this. The others run on CPUs of many makers.
set(LLAMAD_CPU_VARIANTS "" CACHE STRING "the CPU backends to build; empty: all that the compiler can")
if (GGML_CPU_ALL_VARIANTS)
    include(CheckCXXCompilerFlag)
    set(LLAMAD_TUNE_skylakex skylake-avx512)
    set(LLAMAD_TUNE_cannonlake cannonlake)
    set(LLAMAD_TUNE_cascadelake cascadelake)
    set(LLAMAD_TUNE_icelake icelake-server)
    set(LLAMAD_TUNE_cooperlake cooperlake)
    set(LLAMAD_TUNE_zen4 znver4)
    set(LLAMAD_TUNE_sapphirerapids sapphirerapids)
    if (CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)")
        check_cxx_compiler_flag(-march=armv9.2-a+sme LLAMAD_COMPILER_KNOWS_SME)
    endif()

    # CMake keeps a command that a function replaces, under a name with an underscore before it.
    function(add_dependencies target)
        if ("${ARGN}" MATCHES "^ggml-cpu-(.+)$")
            set(variant "${CMAKE_MATCH_1}")
            if (LLAMAD_CPU_VARIANTS AND NOT variant IN_LIST LLAMAD_CPU_VARIANTS)
                return()
            endif()
            if (variant MATCHES "^armv9" AND NOT LLAMAD_COMPILER_KNOWS_SME)
                return()
            endif()
            if (LLAMAD_TUNE_${variant})
                set(tuning "-mtune=${LLAMAD_TUNE_${variant}}")
                check_cxx_compiler_flag(${tuning} LLAMAD_COMPILER_TUNES_${variant})
                if (LLAMAD_COMPILER_TUNES_${variant})
                    target_compile_options(${ARGN} PRIVATE ${tuning})
                endif()
            endif()
        endif()
        _add_dependencies(${target} ${ARGN})
    endfunction()
endif()
