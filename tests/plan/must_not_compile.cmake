# Tests that a broken budget is refused by the compiler, with both numbers in its message. Each case of
# must_not_compile/ says in its first line what to expect:
#   // must not compile: FitsThreads<1056, 1024>     a static_assert fails, and the message holds this text
#   // must compile                                  a control: the same headers with numbers that fit
#
# Two files in one: included by tests/CMakeLists.txt it registers the tests; run with cmake -P it is one of them.
if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(FOURFOLD_MUST_NOT_COMPILE_SCRIPT ${CMAKE_CURRENT_LIST_FILE})

  # fourfold_must_not_compile(plan): a test for each case of <room>/must_not_compile, with this build's compiler.
  function(fourfold_must_not_compile room)
    file(GLOB cases CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${room}/must_not_compile/*.cpp)
    foreach(case ${cases})
      get_filename_component(name ${case} NAME_WE)
      add_test(NAME ${room}.must_not_compile.${name}
        COMMAND ${CMAKE_COMMAND} -DCOMPILER=${CMAKE_CXX_COMPILER} -DCASE=${case} -DINCLUDE=${PROJECT_SOURCE_DIR}/src
          -P ${FOURFOLD_MUST_NOT_COMPILE_SCRIPT})
    endforeach()
  endfunction()

  fourfold_must_not_compile(plan)
  return()
endif()

# The locale decides the compiler's language; "static assertion failed" is English.
set(ENV{LC_ALL} C)
file(STRINGS ${CASE} expectation LIMIT_COUNT 1)
execute_process(COMMAND ${COMPILER} -std=c++20 -fsyntax-only -I${INCLUDE} ${CASE}
  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)

if(expectation STREQUAL "// must compile")
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${CASE} is a control and must compile:\n${output}")
  endif()
elseif(expectation MATCHES "^// must not compile: (.+)$")
  set(wanted "${CMAKE_MATCH_1}")
  if(status EQUAL 0)
    message(FATAL_ERROR "${CASE} compiles, and must not")
  endif()
  if(NOT output MATCHES "static assertion failed|static_assert failed")
    message(FATAL_ERROR "${CASE} fails, but not by a static_assert:\n${output}")
  endif()
  string(FIND "${output}" "${wanted}" position)
  if(position EQUAL -1)
    message(FATAL_ERROR "${CASE}: \"${wanted}\" is not in the compiler's message:\n${output}")
  endif()
else()
  message(FATAL_ERROR "${CASE}: the first line is neither \"// must compile\" nor \"// must not compile: ...\"")
endif()
