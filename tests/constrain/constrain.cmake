# The golden tokenizers, of which tests/text unpacks the large one.
target_compile_definitions(test_constrain PRIVATE FOURFOLD_TEXT_GOLDEN="${text_golden}"
  FOURFOLD_TEXT_UNPACKED="${text_unpacked}")

find_package(Python3 COMPONENTS Interpreter REQUIRED)
add_test(NAME constrain.jsonschema COMMAND ${Python3_EXECUTABLE}
  ${CMAKE_CURRENT_LIST_DIR}/check_with_jsonschema.py $<TARGET_FILE:test_constrain>)
set_tests_properties(constrain.jsonschema PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77)

# cmake -DFOURFOLD_FUZZ=ON -DCMAKE_CXX_COMPILER=clang++-19, then run fuzz_constrain.
if(FOURFOLD_FUZZ)
  add_executable(fuzz_constrain ${CMAKE_CURRENT_LIST_DIR}/fuzz/fuzz_constrain.cpp)
  target_link_libraries(fuzz_constrain PRIVATE fourfold_constrain)
  target_compile_options(fuzz_constrain PRIVATE -fsanitize=fuzzer)
  target_link_options(fuzz_constrain PRIVATE -fsanitize=fuzzer)
endif()
