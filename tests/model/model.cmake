# The tests of the model room run the golden models; checkpoint.cmake has put them together.
if(TARGET test_model)
  target_compile_definitions(test_model PRIVATE FOURFOLD_GOLDEN="${FOURFOLD_GOLDEN}")
  target_sources(test_model PRIVATE ${CMAKE_CURRENT_LIST_DIR}/made_up_family/pebble.cpp)
endif()
# It brings the kernels' namespace step, which hides the function step() of tests/support/steps.h from its neighbours.
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/cuda/step_ways_test.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
