# `fourfold report`: its parts as functions, and the program.
if(TARGET fourfold)
  add_dependencies(test_cli_report fourfold)
  target_compile_definitions(test_cli_report PRIVATE FOURFOLD_PROGRAM="$<TARGET_FILE:fourfold>")
else()
  target_compile_definitions(test_cli_report PRIVATE FOURFOLD_PROGRAM="")
endif()
target_compile_definitions(test_cli_report PRIVATE FOURFOLD_GOLDEN="${FOURFOLD_GOLDEN}")
