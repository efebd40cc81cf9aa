# Real clients against the program. The scripted model they talk to is tested first, without any package; then
# come those whose packages are small. run.py gets them from PyPI once, into the build folder; where it cannot,
# the test is skipped, loudly. The large ones are in ./dev test --long. Not under sanitizers: clients give up on
# servers that are as slow as that.
if(FOURFOLD_PYTHON AND TARGET fourfold)
  set(clients ${CMAKE_CURRENT_LIST_DIR})
  add_test(NAME clients.fixture COMMAND ${FOURFOLD_PYTHON} ${clients}/fixture_test.py $<TARGET_FILE:fourfold>)
  set_tests_properties(clients.fixture PROPERTIES TIMEOUT 600 COST 20)
  add_test(NAME clients.run_can_fail COMMAND ${FOURFOLD_PYTHON} ${clients}/run_test.py)
  add_test(NAME clients.results COMMAND ${FOURFOLD_PYTHON} ${clients}/results.py --check)
  if(NOT FOURFOLD_SANITIZE)
    # Which these are, run.py says.
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${clients}/run.py)
    file(STRINGS ${clients}/run.py line REGEX "^SUITES = ")
    string(REGEX MATCHALL "\"[a-z_]+\"" suites "${line}")
    if(NOT suites)
      message(FATAL_ERROR "fourfold: ${clients}/run.py has no line SUITES = [\"...\"]")
    endif()
    foreach(suite ${suites})
      string(REPLACE "\"" "" suite ${suite})
      add_test(NAME clients.${suite} COMMAND ${FOURFOLD_PYTHON} ${clients}/run.py --program $<TARGET_FILE:fourfold>
        --folder ${CMAKE_BINARY_DIR}/clients ${suite})
      set_tests_properties(clients.${suite} PROPERTIES TIMEOUT 900 COST 30 SKIP_RETURN_CODE 77)
    endforeach()
  endif()
endif()
