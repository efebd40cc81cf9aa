# FOURFOLD_PORTABLE: the program and the libraries need nothing but glibc 2.34, so that they run on other distributions. What a
# wheel and an image are made of. Compiled objects are the same as without it; fourfold_portable(TARGET) is called for whatever
# is linked. Not for those who link the C++ library: its exceptions cannot leave a library that has a libstdc++ of its own.
option(FOURFOLD_PORTABLE "Link libstdc++, OpenSSL and libedit statically, for wheels and images" OFF)
set(OPENSSL_USE_STATIC_LIBS ${FOURFOLD_PORTABLE})
if(NOT FOURFOLD_PORTABLE STREQUAL FOURFOLD_PORTABLE_BEFORE)  # what was found before is of the other kind
  unset(OPENSSL_SSL_LIBRARY CACHE)
  unset(OPENSSL_CRYPTO_LIBRARY CACHE)
endif()
set(FOURFOLD_PORTABLE_BEFORE ${FOURFOLD_PORTABLE} CACHE INTERNAL "")

function(fourfold_portable target)
  if(FOURFOLD_PORTABLE)
    target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/packaging/older_glibc.cpp)
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc)
  endif()
endfunction()

# fourfold_find_edit(VARIABLE): libedit, and where it is linked statically what it is linked with.
function(fourfold_find_edit variable)
  if(NOT FOURFOLD_PORTABLE)
    find_library(FOURFOLD_EDIT_LIBRARY edit)
    if(FOURFOLD_EDIT_LIBRARY)
      set(${variable} ${FOURFOLD_EDIT_LIBRARY} PARENT_SCOPE)
    endif()
    return()
  endif()
  set(found)
  foreach(name edit tinfo bsd md)
    find_library(FOURFOLD_STATIC_${name} lib${name}.a)
    if(NOT FOURFOLD_STATIC_${name})
      message(FATAL_ERROR "fourfold: lib${name}.a was not found; FOURFOLD_PORTABLE links it (Debian: libedit-dev, "
        "libncurses-dev, libbsd-dev, libmd-dev)")
    endif()
    list(APPEND found ${FOURFOLD_STATIC_${name}})
  endforeach()
  set(${variable} ${found} PARENT_SCOPE)
endfunction()
