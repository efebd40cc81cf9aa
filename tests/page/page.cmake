# The chat page in headless Chromium, against a server of the test's own. Where Chromium is missing the test is shown as
# skipped; ./dev test installs it where it may.
find_program(FOURFOLD_PYTHON python3)
if(FOURFOLD_PYTHON)
  add_test(NAME page.chromium COMMAND ${FOURFOLD_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/page_test.py)
  set_tests_properties(page.chromium PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300)
endif()
