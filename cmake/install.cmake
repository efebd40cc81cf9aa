# libfourfold_kernels, libfourfold_engine and what `cmake --install` puts where: the headers, the shared libraries, the
# program, the CMake package (find_package(fourfold), targets fourfold::kernels and fourfold::engine), a pkg-config file and the Python wrapper. Nothing in the
# installed tree holds a path of this machine.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# One fact, two spellings: the header's number must be the project's.
file(STRINGS ${PROJECT_SOURCE_DIR}/include/fourfold/fourfold_kernels.h version_line
  REGEX "^#define FOURFOLD_KERNELS_VERSION [0-9]+$")
string(REGEX MATCH "[0-9]+$" header_version "${version_line}")
math(EXPR project_number "${PROJECT_VERSION_MAJOR} * 10000 + ${PROJECT_VERSION_MINOR} * 100 + ${PROJECT_VERSION_PATCH}")
if(NOT header_version EQUAL project_number)
  message(FATAL_ERROR "fourfold: FOURFOLD_KERNELS_VERSION is ${header_version}, the project's version is "
    "${PROJECT_VERSION}, which is ${project_number}")
endif()

file(GLOB c_api_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/kernels/c_api/*.cpp)
list(FILTER c_api_sources EXCLUDE REGEX "/gpu_[a-z]+\\.cpp$")
if(FOURFOLD_HAS_CUDA)
  list(APPEND c_api_sources ${PROJECT_SOURCE_DIR}/src/kernels/c_api/gpu_cuda.cpp)
else()
  list(APPEND c_api_sources ${PROJECT_SOURCE_DIR}/src/kernels/c_api/gpu_none.cpp)
endif()

# The rooms are position-independent archives; they are linked, not compiled again. The version script keeps the rest of
# them (and the CUDA runtime inside) to ourselves.
set(exports ${PROJECT_SOURCE_DIR}/src/kernels/c_api/exports.map)
add_library(fourfold_kernels SHARED ${c_api_sources})
target_link_libraries(fourfold_kernels PRIVATE fourfold_kernels_room)
if(FOURFOLD_HAS_CUDA)
  target_link_libraries(fourfold_kernels PRIVATE fourfold_kernels_cuda)
endif()
target_link_options(fourfold_kernels PRIVATE -Wl,--version-script=${exports})
if(NOT FOURFOLD_SANITIZE)  # its run-time library is linked into programs only
  target_link_options(fourfold_kernels PRIVATE -Wl,--no-undefined)
endif()
set_target_properties(fourfold_kernels PROPERTIES
  LINK_DEPENDS ${exports}
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}
  EXPORT_NAME kernels)
target_include_directories(fourfold_kernels INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
fourfold_portable(fourfold_kernels)
add_library(fourfold::kernels ALIAS fourfold_kernels)

# libfourfold_engine: the whole engine behind fourfold/engine.h and fourfold/fourfold.h. (The target's name is longer
# because the room `engine` has the short one.)
set(libraries fourfold_kernels)
if(FOURFOLD_HAS_MODEL_FLOOR)
  file(STRINGS ${PROJECT_SOURCE_DIR}/include/fourfold/fourfold.h version_line REGEX "^#define FOURFOLD_VERSION [0-9]+$")
  string(REGEX MATCH "[0-9]+$" header_version "${version_line}")
  if(NOT header_version EQUAL project_number)
    message(FATAL_ERROR "fourfold: FOURFOLD_VERSION is ${header_version}, the project's version is ${project_number}")
  endif()
  set(engine_exports ${PROJECT_SOURCE_DIR}/src/library/exports.map)
  # A token of its own, without OpenSSL: an embedded engine has no ranks on other machines, and needs no libcrypto for them.
  add_library(fourfold_engine_library SHARED ${PROJECT_SOURCE_DIR}/src/library/c_api.cpp
    ${PROJECT_SOURCE_DIR}/src/library/model.cpp ${PROJECT_SOURCE_DIR}/src/library/model_status.cpp
    ${PROJECT_SOURCE_DIR}/src/nodes/token.cpp)
  target_link_libraries(fourfold_engine_library PRIVATE fourfold_library)
  # As needed: the protocols' objects are linked, the server's sockets and TLS are not; so what it leaves is compiled alone.
  set(serving api_keys http_server kept_response log_queue metrics pump api/request_error request_log routes
    service service_work page/static_files status_json text_routes)
  list(TRANSFORM serving REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/src/server/\\1.cpp")
  set_source_files_properties(${serving} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_link_options(fourfold_engine_library PRIVATE -Wl,--version-script=${engine_exports} -Wl,--as-needed)
  if(NOT FOURFOLD_SANITIZE)
    target_link_options(fourfold_engine_library PRIVATE -Wl,--no-undefined)
  endif()
  set_target_properties(fourfold_engine_library PROPERTIES
    LINK_DEPENDS ${engine_exports}
    OUTPUT_NAME fourfold_engine
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}
    EXPORT_NAME engine)
  target_include_directories(fourfold_engine_library INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  fourfold_portable(fourfold_engine_library)
  add_library(fourfold::engine ALIAS fourfold_engine_library)
  list(APPEND libraries fourfold_engine_library)
  install(FILES ${PROJECT_SOURCE_DIR}/include/fourfold/engine.h ${PROJECT_SOURCE_DIR}/include/fourfold/fourfold.h
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/fourfold)
endif()

install(TARGETS ${libraries} EXPORT fourfold_targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${PROJECT_SOURCE_DIR}/include/fourfold/fourfold_kernels.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/fourfold)
# Measured choices of kernels, chip by chip; the program finds them from its own place.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/tuned DESTINATION ${CMAKE_INSTALL_DATADIR}/fourfold)
install(FILES ${PROJECT_SOURCE_DIR}/python/fourfold_kernels.py DESTINATION ${CMAKE_INSTALL_DATADIR}/fourfold/python)
if(FOURFOLD_HAS_MODEL_FLOOR)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/python/fourfold DESTINATION ${CMAKE_INSTALL_DATADIR}/fourfold/python
    PATTERN __pycache__ EXCLUDE)
endif()
# The model the program talks with when it is given none; src/cli/find_model.cpp looks for it there.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/models/storyteller DESTINATION ${CMAKE_INSTALL_DATADIR}/fourfold/models)
if(TARGET fourfold)  # those who embed the library may build it alone
  install(TARGETS fourfold RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} OPTIONAL)
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/fourfold)
install(EXPORT fourfold_targets NAMESPACE fourfold:: FILE fourfold-targets.cmake DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/fourfold-config.cmake.in
  ${CMAKE_BINARY_DIR}/package/fourfold-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/package/fourfold-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/package/fourfold-config.cmake
  ${CMAKE_BINARY_DIR}/package/fourfold-config-version.cmake DESTINATION ${package_dir})

# From the .pc file back to the prefix, so that a moved tree still tells the truth.
file(RELATIVE_PATH FOURFOLD_PC_TO_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(${PROJECT_SOURCE_DIR}/cmake/fourfold_kernels.pc.in ${CMAKE_BINARY_DIR}/package/fourfold_kernels.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/package/fourfold_kernels.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# Licences of what is inside, and the SBOM.
set(doc_dir ${CMAKE_INSTALL_DATADIR}/doc/fourfold)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${doc_dir})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/licenses DESTINATION ${doc_dir})
install(FILES ${PROJECT_SOURCE_DIR}/src/server/page/math/font-license.txt DESTINATION ${doc_dir}/licenses)
install(FILES ${CMAKE_BINARY_DIR}/fourfold.spdx.json DESTINATION ${doc_dir} OPTIONAL)
