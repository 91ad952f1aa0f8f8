# Read by CMake inside ggml's project (CMAKE_PROJECT_ggml_INCLUDE), so that a fault of the compiler can be kept
# away from llama.cpp without touching its sources. Each header says which fault it is.
add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,GNU>:SHELL:-include ${CMAKE_CURRENT_LIST_DIR}/tile_config.h>")

# With GGML_CPU_ALL_VARIANTS, ggml has CPU backends that not every compiler can build: GCC before 14 does not know ARM's
# SME. Those are left out; with LLAMAD_CPU_VARIANTS, all but the named ones, such as "x64;haswell;zen4". Nothing depends
# on them any more, so Ninja does not build them.
set(LLAMAD_CPU_VARIANTS "" CACHE STRING "the CPU backends to build; empty: all that the compiler can")
if (GGML_CPU_ALL_VARIANTS)
    if (CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)")
        include(CheckCXXCompilerFlag)
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
        endif()
        _add_dependencies(${target} ${ARGN})
    endfunction()
endif()
