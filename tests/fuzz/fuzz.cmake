# Every fuzz target over its corpus and random damage to it, as an ordinary test. The targets themselves stand beside the
# tests of their rooms; with -DFOURFOLD_FUZZ=ON and clang they are also built for libFuzzer, which steers by coverage:
#   cmake -G Ninja -B build-fuzz -DCMAKE_CXX_COMPILER=clang++-19 -DFOURFOLD_CUDA=off -DFOURFOLD_FUZZ=ON \
#     -DFOURFOLD_SANITIZE=address,undefined && ninja -C build-fuzz fuzz_requests
#   FOURFOLD_FUZZ_TEXT=tests/golden/text build-fuzz/fuzz_requests -max_total_time=300 NEW_CORPUS tests/fuzz/corpus/requests
set(golden ${PROJECT_SOURCE_DIR}/tests/golden)
add_custom_target(test_fuzz)  # all of them, as the tests of a room
function(fourfold_replay name room rounds)
  file(GLOB corpus CONFIGURE_DEPENDS ${ARGN})
  add_executable(replay_${name} ${CMAKE_CURRENT_SOURCE_DIR}/${room}/fuzz/fuzz_${name}.cpp
    ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/replay.cpp)
  target_link_libraries(replay_${name} PRIVATE fourfold_${room})
  target_include_directories(replay_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  add_dependencies(test_fuzz replay_${name})
  if(FOURFOLD_FUZZ)
    add_executable(fuzz_${name} ${CMAKE_CURRENT_SOURCE_DIR}/${room}/fuzz/fuzz_${name}.cpp)
    target_link_libraries(fuzz_${name} PRIVATE fourfold_${room})
    target_include_directories(fuzz_${name} PRIVATE ${PROJECT_SOURCE_DIR})
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  endif()
  add_test(NAME fuzz.${name} COMMAND replay_${name} --rounds ${rounds} ${corpus})
  set_tests_properties(fuzz.${name} PROPERTIES TIMEOUT 600
    ENVIRONMENT "FOURFOLD_FUZZ_TOKENIZER=${golden}/text/gpt2.tokenizer.json;FOURFOLD_FUZZ_TEXT=${golden}/text")
endfunction()

fourfold_replay(safetensors checkpoint 50000 ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/safetensors/*.safetensors)
fourfold_replay(config checkpoint 20000 ${golden}/qwen35-micro/*/*config.json)
fourfold_replay(tokenizer text 10000 ${golden}/text/gpt2.tokenizer.json ${golden}/text/qwen35.tokenizer.json
  ${golden}/text/llama3.tokenizer.json)
fourfold_replay(template text 20000 ${golden}/text/templates/*.jinja)
fourfold_replay(encode text 10000 ${golden}/text/README.md ${golden}/text/templates/*.jinja)
fourfold_replay(constrain constrain 4000 ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/constrain/*)
fourfold_replay(tool_calls text 10000 ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/tool_calls/*)
fourfold_replay(requests server 40000 ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/requests/*)
fourfold_replay(http server 40000 ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/http/*)
fourfold_replay(stream loadgen 20000 ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/stream/*.http)
