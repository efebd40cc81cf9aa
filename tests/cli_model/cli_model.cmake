# Commands that take a MODEL, as functions and through the program; on golden models.
target_compile_definitions(test_cli_model PRIVATE FOURFOLD_GOLDEN_MODELOPT="${FOURFOLD_GOLDEN_MODELOPT}")
if(TARGET fourfold)
  add_dependencies(test_cli_model fourfold)
  target_compile_definitions(test_cli_model PRIVATE FOURFOLD_PROGRAM="$<TARGET_FILE:fourfold>")
else()
  target_compile_definitions(test_cli_model PRIVATE FOURFOLD_PROGRAM="")
endif()
