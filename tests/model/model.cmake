# The tests of the model room run the golden models; checkpoint.cmake has put them together.
if(TARGET test_model)
  target_compile_definitions(test_model PRIVATE FOURFOLD_GOLDEN="${FOURFOLD_GOLDEN}")
endif()
