# fourfold-chat: the commands that answer, on a CPU, and nothing else. ./dev try builds it first, since it needs little more than half of what
# the whole program costs. Made of the same objects, which the program then needs not compile again: rooms are named one by
# one, for what they are linked with elsewhere (backend with the GPU's, library with the machines) is not to be built.
fourfold_commands(fourfold_chat_commands chat_commands)
# Of these the linker takes some and leaves others: each is compiled alone.
file(GLOB chosen CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/library/*.cpp)
set_source_files_properties(${chosen} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
add_executable(fourfold_chat $<TARGET_OBJECTS:fourfold_command_line> $<TARGET_OBJECTS:fourfold_chat_commands>
  ${PROJECT_SOURCE_DIR}/src/library/no_machines.cpp
  # Of the room plan; the rest explains budgets.
  ${PROJECT_SOURCE_DIR}/src/plan/arch.cpp ${PROJECT_SOURCE_DIR}/src/plan/expected_tiles.cpp)
set_target_properties(fourfold_chat PROPERTIES OUTPUT_NAME fourfold-chat LINKER_LANGUAGE CXX)
target_link_libraries(fourfold_chat PRIVATE fourfold_options)
set(chat_rooms cli_talk cli_console build_info hub http library server constrain engine events schedule sample model nodes backend kernels_cpu
  kernels_choose text checkpoint json base)
target_link_libraries(fourfold_chat PRIVATE -Wl,--start-group)
foreach(room ${chat_rooms})
  target_link_libraries(fourfold_chat PRIVATE $<TARGET_FILE:fourfold_${room}>)
  add_dependencies(fourfold_chat fourfold_${room})
endforeach()
target_link_libraries(fourfold_chat PRIVATE -Wl,--end-group Threads::Threads ${CMAKE_DL_LIBS})
if(OPENSSL_FOUND)
  target_link_libraries(fourfold_chat PRIVATE OpenSSL::SSL OpenSSL::Crypto)
endif()
target_link_libraries(fourfold_chat PRIVATE ${FOURFOLD_EDIT_LIBRARIES})
fourfold_portable(fourfold_chat)
