# The tests of the engine run the golden models; checkpoint.cmake has put them together.
if(TARGET test_engine)
  target_compile_definitions(test_engine PRIVATE FOURFOLD_GOLDEN="${FOURFOLD_GOLDEN}"
    FOURFOLD_TEXT_GOLDEN="${PROJECT_SOURCE_DIR}/tests/golden/text")
endif()
