# Read by CMake inside ggml's project (CMAKE_PROJECT_ggml_INCLUDE), so that a fault of the compiler can be kept
# away from llama.cpp without touching its sources. Each header says which fault it is.
add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,GNU>:SHELL:-include ${CMAKE_CURRENT_LIST_DIR}/tile_config.h>")
