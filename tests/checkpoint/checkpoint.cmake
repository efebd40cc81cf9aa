# What the tests of the checkpoint room need beside their sources: the golden ModelOpt model, put together from the other
# golden folders. Tests of other rooms find it by the same variable.
set(FOURFOLD_GOLDEN_MODELOPT ${CMAKE_CURRENT_BINARY_DIR}/golden/modelopt)
find_package(Python3 COMPONENTS Interpreter REQUIRED)
if(NOT EXISTS ${FOURFOLD_GOLDEN_MODELOPT}/model-00002-of-00002.safetensors)
  execute_process(COMMAND ${Python3_EXECUTABLE}
    ${PROJECT_SOURCE_DIR}/tests/golden/qwen35-micro/assemble_modelopt.py ${FOURFOLD_GOLDEN_MODELOPT}
    COMMAND_ERROR_IS_FATAL ANY)
endif()
if(TARGET test_checkpoint)
  target_compile_definitions(test_checkpoint PRIVATE FOURFOLD_GOLDEN_MODELOPT="${FOURFOLD_GOLDEN_MODELOPT}")
endif()
