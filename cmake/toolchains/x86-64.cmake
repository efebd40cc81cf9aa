# Builds for x86-64 Linux on another machine (Debian: g++-x86-64-linux-gnu, and the libraries' :amd64 packages); what the build
# and the tests have to run goes through qemu-user. CUDA: ../cross_cuda.cmake.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_C_COMPILER x86_64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER x86_64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE x86_64-linux-gnu)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-x86_64;-cpu;max)
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/x86_64-linux-gnu/pkgconfig)
