# The scan is tested on GPU code that the test compiles itself, where there is a compiler for it.
find_program(FOURFOLD_SCAN_NVCC nvcc HINTS /usr/local/cuda/bin)
if(NOT FOURFOLD_SCAN_NVCC)
  set(FOURFOLD_SCAN_NVCC "")
endif()
target_compile_definitions(test_doctor PRIVATE FOURFOLD_NVCC="${FOURFOLD_SCAN_NVCC}")

# Stands in for the driver's library, so that what asks it is tested where there is none.
add_library(fake_nvml SHARED ${CMAKE_CURRENT_LIST_DIR}/fake_nvml.cpp)
target_link_libraries(fake_nvml PRIVATE fourfold_options)
set_target_properties(fake_nvml PROPERTIES OUTPUT_NAME nvidia-ml SUFFIX .so.1
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/fake)
add_dependencies(test_doctor fake_nvml)
target_compile_definitions(test_doctor PRIVATE FOURFOLD_FAKE_NVML="$<TARGET_FILE:fake_nvml>")
