# A real server on a golden model, in this process and as the program, and everything that could go wrong with it.
target_compile_definitions(test_faults PRIVATE FOURFOLD_GOLDEN="${FOURFOLD_GOLDEN}")
if(TARGET fourfold)
  add_dependencies(test_faults fourfold)
  target_compile_definitions(test_faults PRIVATE FOURFOLD_PROGRAM="$<TARGET_FILE:fourfold>")
else()
  target_compile_definitions(test_faults PRIVATE FOURFOLD_PROGRAM="")
endif()
