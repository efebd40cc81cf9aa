# What the tests of the text room need beside their sources. Qwen3's vocabulary is kept packed and is unpacked here.
set(text_golden ${PROJECT_SOURCE_DIR}/tests/golden/text)
set(text_unpacked ${CMAKE_CURRENT_BINARY_DIR}/text)
if(NOT EXISTS ${text_unpacked}/qwen3.tokenizer.json)
  file(ARCHIVE_EXTRACT INPUT ${text_golden}/qwen3.tokenizer.tar.xz DESTINATION ${text_unpacked})
endif()
if(TARGET test_text)
  target_compile_definitions(test_text PRIVATE FOURFOLD_TEXT_GOLDEN="${text_golden}"
    FOURFOLD_TEXT_UNPACKED="${text_unpacked}")
endif()

add_executable(text_probe EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/probe/text_probe.cpp)
target_link_libraries(text_probe PRIVATE fourfold_text)
