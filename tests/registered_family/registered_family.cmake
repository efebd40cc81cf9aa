# The commands with one family more than the program has: its folder, and its line in the list.
target_sources(test_registered_family PRIVATE ${CMAKE_CURRENT_LIST_DIR}/families.cpp
  ${PROJECT_SOURCE_DIR}/tests/model/made_up_family/pebble.cpp)
# For the helpers of tests/checkpoint.
target_compile_definitions(test_registered_family PRIVATE FOURFOLD_GOLDEN="${FOURFOLD_GOLDEN}")
