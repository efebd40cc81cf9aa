# Stands in for NCCL, so that what calls it is tested where there is none.
add_library(fake_nccl SHARED ${CMAKE_CURRENT_LIST_DIR}/all_reduce/fake_nccl.cpp
  ${CMAKE_CURRENT_LIST_DIR}/all_reduce/fake_nccl_ranks.cpp)
target_link_libraries(fake_nccl PRIVATE fourfold_options rt)
set_target_properties(fake_nccl PROPERTIES OUTPUT_NAME nccl SUFFIX .so.2
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/fake)
add_dependencies(test_kernels fake_nccl)
target_compile_definitions(test_kernels PRIVATE FOURFOLD_FAKE_NCCL="$<TARGET_FILE:fake_nccl>")
