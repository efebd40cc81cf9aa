# Ranks as processes: on loopback, and in network namespaces with delay and loss where the machine allows those; elsewhere the
# last two say why they were skipped.
find_program(FOURFOLD_PYTHON python3)
if(TARGET fourfold AND TARGET fake_nccl AND FOURFOLD_PYTHON AND OPENSSL_FOUND AND NOT FOURFOLD_SANITIZE)
  function(add_process_test part file)
    add_test(NAME nodes.processes.${part}
      COMMAND ${FOURFOLD_PYTHON} ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/${file} $<TARGET_FILE:fourfold> ${ARGN} ${part})
    set_tests_properties(nodes.processes.${part} PROPERTIES TIMEOUT 600 ${FOURFOLD_MOSTLY_WAITS})
  endfunction()
  add_process_test(Nodes nodes_test.py)
  add_process_test(Simulated simulated_test.py $<TARGET_FILE:fake_nccl>)
  add_process_test(GatheredByNccl simulated_test.py $<TARGET_FILE:fake_nccl>)
  add_process_test(SlowWire slow_wire_test.py)
  add_process_test(SlowSimulated slow_wire_test.py)
endif()
