# The pages in headless Chromium, against a server of the tests' own. Where Chromium is missing the tests are shown as
# skipped; ./dev test installs it where it may.
find_program(FOURFOLD_PYTHON python3)
if(FOURFOLD_PYTHON)
  foreach(name page markdown)
    add_test(NAME page.${name} COMMAND ${FOURFOLD_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/${name}_test.py)
    set_tests_properties(page.${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300)
  endforeach()
endif()
