# The tests of the engine run the golden models; checkpoint.cmake has put the ModelOpt one together.
if(TARGET test_engine)
  target_compile_definitions(test_engine PRIVATE FOURFOLD_GOLDEN_MODELOPT="${FOURFOLD_GOLDEN_MODELOPT}"
    FOURFOLD_TEXT_GOLDEN="${PROJECT_SOURCE_DIR}/tests/golden/text")
endif()
