# Pulls against a hub of the test's own, which cuts, lies, redirects and refuses. (With the hub's real package on the same
# cache: ./dev test --long clients.)
find_program(FOURFOLD_PYTHON python3)
if(TARGET fourfold AND FOURFOLD_PYTHON AND OPENSSL_FOUND)
  add_test(NAME hub.pull COMMAND ${FOURFOLD_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/pull_test.py $<TARGET_FILE:fourfold>)
  set_tests_properties(hub.pull PROPERTIES TIMEOUT 600 ${FOURFOLD_MOSTLY_WAITS})
endif()
