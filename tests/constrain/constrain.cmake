# The golden tokenizers, of which tests/text unpacks the large one.
target_compile_definitions(test_constrain PRIVATE FOURFOLD_TEXT_GOLDEN="${text_golden}"
  FOURFOLD_TEXT_UNPACKED="${text_unpacked}"
  FOURFOLD_PYDANTIC_SCHEMAS="${CMAKE_CURRENT_LIST_DIR}/pydantic_schemas.json")

find_package(Python3 COMPONENTS Interpreter REQUIRED)
add_test(NAME constrain.jsonschema COMMAND ${Python3_EXECUTABLE}
  ${CMAKE_CURRENT_LIST_DIR}/check_with_jsonschema.py $<TARGET_FILE:test_constrain>)
set_tests_properties(constrain.jsonschema PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77)
add_test(NAME constrain.pydantic COMMAND ${Python3_EXECUTABLE}
  ${CMAKE_CURRENT_LIST_DIR}/check_with_pydantic.py $<TARGET_FILE:test_constrain>)
set_tests_properties(constrain.pydantic PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77)
