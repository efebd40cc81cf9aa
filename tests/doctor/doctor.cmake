# The scan is tested on GPU code that the test compiles itself, where there is a compiler for it.
find_program(FOURFOLD_SCAN_NVCC nvcc HINTS /usr/local/cuda/bin)
if(NOT FOURFOLD_SCAN_NVCC)
  set(FOURFOLD_SCAN_NVCC "")
endif()
target_compile_definitions(test_doctor PRIVATE FOURFOLD_NVCC="${FOURFOLD_SCAN_NVCC}")
