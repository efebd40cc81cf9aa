# Rooms above the silicon floor. They read JSON with Boost.JSON in its header-only form, so they need the Boost headers
# and no Boost library; without the headers they are left out loudly and everything below still builds.
set(FOURFOLD_BOOST_MINIMUM 1.81)
set(boost_packages "Debian 12: libboost1.81-dev; Debian 13, Ubuntu 24.04 and later: libboost-dev")
set(FOURFOLD_HAS_MODEL_FLOOR OFF)
option(FOURFOLD_FUZZ "Build the fuzz targets (needs clang)" OFF)
if(FOURFOLD_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "fourfold: the fuzz targets need clang: -DCMAKE_CXX_COMPILER=clang++-19")
  endif()
  # The fuzzer steers by the coverage of the rooms themselves.
  target_compile_options(fourfold_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

find_path(FOURFOLD_BOOST_INCLUDE boost/json.hpp HINTS ${FOURFOLD_BUNDLE} ${FOURFOLD_BUNDLE}/include)
if(FOURFOLD_BOOST_INCLUDE)
  file(STRINGS ${FOURFOLD_BOOST_INCLUDE}/boost/version.hpp boost_version_line REGEX "#define BOOST_LIB_VERSION")
  string(REGEX MATCH "([0-9]+)_([0-9]+)" ignored "${boost_version_line}")
  set(boost_version ${CMAKE_MATCH_1}.${CMAKE_MATCH_2})
  if(boost_version VERSION_LESS FOURFOLD_BOOST_MINIMUM)
    message(WARNING "fourfold: Boost ${boost_version} in ${FOURFOLD_BOOST_INCLUDE} is too old; the model floor needs "
      "${FOURFOLD_BOOST_MINIMUM} or newer (${boost_packages}). Building the silicon floor only")
  else()
    set(FOURFOLD_HAS_MODEL_FLOOR ON)
  endif()
else()
  message(WARNING "fourfold: boost/json.hpp was not found; the model floor needs the headers of Boost "
    "${FOURFOLD_BOOST_MINIMUM} or newer (${boost_packages}). Building the silicon floor only")
endif()

if(FOURFOLD_HAS_MODEL_FLOOR)
  message(STATUS "fourfold: model floor with Boost ${boost_version} headers")
  # SYSTEM: Boost's own warnings are not ours.
  add_library(fourfold_boost INTERFACE)
  target_include_directories(fourfold_boost SYSTEM INTERFACE ${FOURFOLD_BOOST_INCLUDE})

  fourfold_room(json LINK fourfold_base fourfold_boost)
  # What writes checkpoints, and the GPU's backend, are libraries of their own: a program that only answers on a CPU
  # (chat.cmake) does without.
  fourfold_room(checkpoint EXCLUDE "/checkpoint/write/" LINK fourfold_base fourfold_json)
  fourfold_room(checkpoint/write LINK fourfold_base fourfold_json)
  target_link_libraries(fourfold_checkpoint PUBLIC fourfold_checkpoint_write)
  target_link_libraries(fourfold_checkpoint_write PUBLIC fourfold_checkpoint)
  # A whole library in one file, whose warnings are not ours.
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/json/boost_json.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  # tests/registered_family has a longer copy in its place: nothing else may be in its object.
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/checkpoint/family.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  # What quantize writes names the program that wrote it.
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/checkpoint/write/storage_scheme.cpp PROPERTIES
    COMPILE_DEFINITIONS FOURFOLD_VERSION_TEXT="${PROJECT_VERSION}")
  fourfold_room(text LINK fourfold_base fourfold_json)
  fourfold_room(backend EXCLUDE "/backend/cuda/" LINK fourfold_base fourfold_checkpoint fourfold_kernels_cpu)
  fourfold_room(backend/cuda LINK fourfold_base fourfold_checkpoint fourfold_kernels_room)
  target_link_libraries(fourfold_backend PUBLIC fourfold_backend_cuda)
  target_link_libraries(fourfold_backend_cuda PUBLIC fourfold_backend)
  fourfold_room(model LINK fourfold_base fourfold_plan fourfold_checkpoint fourfold_backend)
  fourfold_room(nodes LINK fourfold_base fourfold_backend)
  fourfold_room(evaluate LINK fourfold_base fourfold_checkpoint fourfold_backend fourfold_model)
  fourfold_room(sample LINK fourfold_base)
  fourfold_room(http LINK fourfold_base fourfold_boost)
  fourfold_room(doctor LINK fourfold_base fourfold_plan fourfold_json fourfold_http fourfold_checkpoint)
  # The NVIDIA libraries are opened at run time, where there are any.
  target_link_libraries(fourfold_doctor PUBLIC ${CMAKE_DL_LIBS})
  fourfold_room(schedule LINK fourfold_base)
  fourfold_room(events LINK fourfold_base fourfold_schedule fourfold_boost)
  fourfold_room(engine LINK fourfold_base fourfold_backend fourfold_sample fourfold_text fourfold_schedule)
  fourfold_room(constrain LINK fourfold_base fourfold_json fourfold_text fourfold_sample fourfold_engine)
  fourfold_room(server LINK fourfold_base fourfold_json fourfold_text fourfold_sample fourfold_engine fourfold_constrain)
  include(cmake/page.cmake)
  # g++ refuses fences under the thread sanitizer; Asio has them for several threads in one context, and here there is one.
  if(FOURFOLD_SANITIZE MATCHES "thread")
    foreach(room server http events)
      target_compile_definitions(fourfold_${room} PRIVATE BOOST_ASIO_DISABLE_FENCED_BLOCK)
    endforeach()
  endif()
  # TLS, where OpenSSL's headers are; without them --tls-cert is refused. Asio and Beast are headers of Boost.
  find_package(OpenSSL 3.0 QUIET)
  if(OPENSSL_FOUND)
    foreach(room server http)
      target_compile_definitions(fourfold_${room} PRIVATE FOURFOLD_HAS_OPENSSL)
      target_link_libraries(fourfold_${room} PRIVATE OpenSSL::SSL OpenSSL::Crypto)
    endforeach()
    # Who joins ranks of several machines proves that it knows their token; without OpenSSL --nodes is refused.
    target_compile_definitions(fourfold_nodes PRIVATE FOURFOLD_HAS_OPENSSL)
    target_link_libraries(fourfold_nodes PRIVATE OpenSSL::Crypto)
    message(STATUS "fourfold: TLS by OpenSSL ${OPENSSL_VERSION}")
  else()
    set(instead "was not found")
    if(OPENSSL_VERSION)
      set(instead "is needed, and ${OPENSSL_VERSION} was found")
    endif()
    message(WARNING "fourfold: OpenSSL 3 ${instead} (Debian: libssl-dev): the server is built without TLS, and "
      "`fourfold pull` is left out, so models are not fetched by name")
  endif()
  # Models by name. Fetching needs TLS and OpenSSL's hashes; what is in the cache is found, listed and removed without.
  if(OPENSSL_FOUND)
    set(hub_sources blob cache digest listing pull settings web)
  else()
    set(hub_sources cache listing pull_none settings)
  endif()
  list(TRANSFORM hub_sources REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/src/hub/\\1.cpp")
  add_library(fourfold_hub STATIC ${hub_sources})
  target_link_libraries(fourfold_hub PUBLIC fourfold_options fourfold_base fourfold_json fourfold_http fourfold_checkpoint)
  if(OPENSSL_FOUND)
    target_link_libraries(fourfold_hub PRIVATE OpenSSL::Crypto)
  endif()
  fourfold_precompile(fourfold_hub fourfold_hub)
  # What the program shares with libfourfold_engine; the rest of the room is that library's own, see install.cmake.
  set(library_sources activations open_model prepare_model machine_rank open_engine served_model calls rank_machines tuned expert_choice plan_step predict
    predict_layer node_ranks)
  list(TRANSFORM library_sources REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/src/library/\\1.cpp")
  add_library(fourfold_library STATIC ${library_sources})
  target_link_libraries(fourfold_library PUBLIC fourfold_options fourfold_base fourfold_plan fourfold_checkpoint fourfold_text
    fourfold_sample fourfold_engine fourfold_events fourfold_model fourfold_nodes fourfold_server fourfold_gpu ${CMAKE_DL_LIBS})
  fourfold_precompile(fourfold_library fourfold_hub)
  fourfold_room(loadgen LINK fourfold_base fourfold_json fourfold_http)
  # These open and fetch before anything computes: with -O1 they compile a quarter faster, and nobody waits longer.
  foreach(room library hub)
    target_compile_options(fourfold_${room} PRIVATE -O1)
  endforeach()
endif()
