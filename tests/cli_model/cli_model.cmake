# Commands that take a MODEL, as functions and through the program; on golden models.
target_compile_definitions(test_cli_model PRIVATE FOURFOLD_GOLDEN="${FOURFOLD_GOLDEN}")
if(TARGET fourfold)
  add_dependencies(test_cli_model fourfold)
  target_compile_definitions(test_cli_model PRIVATE FOURFOLD_PROGRAM="$<TARGET_FILE:fourfold>")
else()
  target_compile_definitions(test_cli_model PRIVATE FOURFOLD_PROGRAM="")
endif()

# At a pseudo-terminal, with the model that comes with the program.
find_program(FOURFOLD_PYTHON python3)
if(TARGET fourfold AND FOURFOLD_PYTHON AND FOURFOLD_EDIT AND FOURFOLD_EDIT_LIBRARY AND NOT FOURFOLD_SANITIZE)
  add_test(NAME cli_model.chat_terminal COMMAND ${FOURFOLD_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/chat_terminal_test.py
    $<TARGET_FILE:fourfold>)
  set_tests_properties(cli_model.chat_terminal PROPERTIES TIMEOUT 900 ${FOURFOLD_MOSTLY_WAITS})
endif()

# `fourfold` alone, --version, and options of serve from a file and from the environment.
if(TARGET fourfold AND FOURFOLD_PYTHON AND FOURFOLD_TOML AND NOT FOURFOLD_SANITIZE)
  add_test(NAME cli_model.first_minutes COMMAND ${FOURFOLD_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/first_minutes_test.py
    $<TARGET_FILE:fourfold>)
  set_tests_properties(cli_model.first_minutes PROPERTIES TIMEOUT 300 ${FOURFOLD_MOSTLY_WAITS})
endif()
