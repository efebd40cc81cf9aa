# The pages in headless Chromium: against a server of the tests' own, which answers by script, and as the program serves
# them. Where Chromium is missing the tests are shown as skipped; ./dev test installs it where it may.
find_program(FOURFOLD_PYTHON python3)
if(FOURFOLD_PYTHON)
  set(page_tests page chats files settings everybody markdown math hostile speed)
  if(TARGET fourfold)
    list(APPEND page_tests live)
  endif()
  foreach(name IN LISTS page_tests)
    set(program $<$<STREQUAL:${name},live>:$<TARGET_FILE:fourfold>>)
    add_test(NAME page.${name} COMMAND ${FOURFOLD_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/${name}_test.py ${program}
      COMMAND_EXPAND_LISTS)
    set_tests_properties(page.${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300 ${FOURFOLD_MOSTLY_WAITS})
  endforeach()
  if(TARGET fourfold)
    add_test(NAME docs.serving_options COMMAND ${FOURFOLD_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/serving_docs_test.py
      ${PROJECT_SOURCE_DIR} $<TARGET_FILE:fourfold>)
  endif()
endif()
