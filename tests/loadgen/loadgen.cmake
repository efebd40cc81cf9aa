# cmake -DFOURFOLD_FUZZ=ON -DCMAKE_CXX_COMPILER=clang++-19, then run fuzz_stream NEW_CORPUS tests/fuzz/corpus/stream.
if(FOURFOLD_FUZZ)
  add_executable(fuzz_stream ${CMAKE_CURRENT_LIST_DIR}/fuzz/fuzz_stream.cpp)
  target_link_libraries(fuzz_stream PRIVATE fourfold_loadgen)
  target_compile_options(fuzz_stream PRIVATE -fsanitize=fuzzer)
  target_link_options(fuzz_stream PRIVATE -fsanitize=fuzzer)
endif()
