# The commands with one family more than the program has. What docs/adding-a-model.md tells to do is done here to a
# copy of src/checkpoint/family.cpp: a declaration and an entry of its list. The copy defines the same function, so the linker
# leaves the library's out.
set(family_list ${PROJECT_SOURCE_DIR}/src/checkpoint/family.cpp)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${family_list})
file(READ ${family_list} family_lines)
foreach(first "extern const Family kQwen35;\n" "&kQwen35, ")
  string(REPLACE kQwen35 kPebble another "${first}")
  string(FIND "${family_lines}" "${first}" place)
  if(place EQUAL -1)
    message(FATAL_ERROR "${family_list} does not have '${first}', to put another beside")
  endif()
  string(REPLACE "${first}" "${first}${another}" family_lines "${family_lines}")
endforeach()
file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/registered_family/family.cpp CONTENT "${family_lines}")
target_sources(test_registered_family PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/registered_family/family.cpp
  ${PROJECT_SOURCE_DIR}/tests/model/made_up_family/pebble.cpp)
# For the helpers of tests/checkpoint.
target_compile_definitions(test_registered_family PRIVATE FOURFOLD_GOLDEN="${FOURFOLD_GOLDEN}")
