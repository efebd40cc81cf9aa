# The tests of the model room run the golden models; checkpoint.cmake has put the ModelOpt one together.
if(TARGET test_model)
  target_compile_definitions(test_model PRIVATE FOURFOLD_GOLDEN_MODELOPT="${FOURFOLD_GOLDEN_MODELOPT}")
endif()
