# What users get: the Python module, a wheel and a package of this build, completions and the manual. auditwheel, chroots and
# images take longer: ./dev test --long package-wheel and its neighbours.
if(FOURFOLD_PYTHON AND TARGET fourfold AND FOURFOLD_HAS_MODEL_FLOOR AND NOT FOURFOLD_SANITIZE)
  set(packaging ${CMAKE_CURRENT_LIST_DIR})
  set(build_of_this FOURFOLD_ENGINE_LIBRARY=$<TARGET_FILE:fourfold_engine_library>
    FOURFOLD_PROGRAM=$<TARGET_FILE:fourfold>)
  add_test(NAME packaging.python COMMAND ${FOURFOLD_PYTHON} ${packaging}/fourfold_test.py ${PROJECT_SOURCE_DIR})
  set_tests_properties(packaging.python PROPERTIES TIMEOUT 600 ENVIRONMENT "${build_of_this}")
  add_test(NAME packaging.typed COMMAND ${FOURFOLD_PYTHON} ${packaging}/typed_test.py ${PROJECT_SOURCE_DIR}
    ${CMAKE_BINARY_DIR}/clients)
  set_tests_properties(packaging.typed PROPERTIES TIMEOUT 600 SKIP_RETURN_CODE 77 ENVIRONMENT "${build_of_this}")
  add_test(NAME packaging.wheel COMMAND ${FOURFOLD_PYTHON} ${packaging}/wheel_test.py ${CMAKE_BINARY_DIR})
  set_tests_properties(packaging.wheel PROPERTIES TIMEOUT 600 SKIP_RETURN_CODE 77 COST 10)
  add_test(NAME packaging.other_machine COMMAND ${FOURFOLD_PYTHON} ${packaging}/other_machine_test.py)
  add_test(NAME packaging.completion COMMAND ${FOURFOLD_PYTHON} ${packaging}/completion_test.py $<TARGET_FILE:fourfold>)
  add_test(NAME packaging.manifests COMMAND ${FOURFOLD_PYTHON} ${packaging}/manifests_test.py ${PROJECT_SOURCE_DIR}
    ${CMAKE_BINARY_DIR}/clients $<TARGET_FILE:fourfold>)
  set_tests_properties(packaging.manifests PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77)
  add_test(NAME packaging.vllm COMMAND ${FOURFOLD_PYTHON} ${packaging}/vllm_plugin_test.py ${PROJECT_SOURCE_DIR})
  set_tests_properties(packaging.vllm PROPERTIES TIMEOUT 60
    ENVIRONMENT "FOURFOLD_KERNELS_LIBRARY=$<TARGET_FILE:fourfold_kernels>")
  add_test(NAME packaging.try COMMAND ${FOURFOLD_PYTHON} ${packaging}/try_test.py $<TARGET_FILE:fourfold>
    $<TARGET_FILE:fourfold_chat>)
  set_tests_properties(packaging.try PROPERTIES TIMEOUT 300)
endif()
