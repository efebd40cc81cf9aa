# What the tests of the text room need beside their sources. Qwen3's vocabulary and the templates' outputs are kept packed and
# are unpacked here.
set(text_golden ${PROJECT_SOURCE_DIR}/tests/golden/text)
set(text_unpacked ${CMAKE_CURRENT_BINARY_DIR}/text)
if(NOT EXISTS ${text_unpacked}/qwen3.tokenizer.json)
  file(ARCHIVE_EXTRACT INPUT ${text_golden}/qwen3.tokenizer.tar.xz DESTINATION ${text_unpacked})
endif()
if(${text_golden}/templates.tar.xz IS_NEWER_THAN ${text_unpacked}/template_cases.json)  # or the latter is not there
  file(ARCHIVE_EXTRACT INPUT ${text_golden}/templates.tar.xz DESTINATION ${text_unpacked} TOUCH)
endif()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${text_golden}/templates.tar.xz)
if(TARGET test_text)
  target_compile_definitions(test_text PRIVATE FOURFOLD_TEXT_GOLDEN="${text_golden}"
    FOURFOLD_TEXT_UNPACKED="${text_unpacked}")
endif()

add_executable(text_probe EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/probe/text_probe.cpp)
target_link_libraries(text_probe PRIVATE fourfold_text)
