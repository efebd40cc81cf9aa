# Ranks as processes: on loopback, and in network namespaces with delay and loss where the machine allows those; elsewhere the
# second says why it was skipped.
find_program(FOURFOLD_PYTHON python3)
if(TARGET fourfold AND TARGET fake_nccl AND FOURFOLD_PYTHON AND OPENSSL_FOUND AND NOT FOURFOLD_SANITIZE)
  foreach(part Nodes Simulated GatheredByNccl SlowWire)
    add_test(NAME nodes.processes.${part} COMMAND ${FOURFOLD_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/nodes_test.py
      $<TARGET_FILE:fourfold> $<TARGET_FILE:fake_nccl> ${part})
    set_tests_properties(nodes.processes.${part} PROPERTIES COST 20 TIMEOUT 600)
  endforeach()
endif()
