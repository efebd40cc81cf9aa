# Real clients against the program. The scripted model they talk to is tested first, without any package.
if(FOURFOLD_PYTHON AND TARGET fourfold)
  add_test(NAME clients.fixture COMMAND ${FOURFOLD_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/fixture_test.py $<TARGET_FILE:fourfold>)
  set_tests_properties(clients.fixture PROPERTIES TIMEOUT 600 COST 20)
endif()
