# The public headers: fusor.h and every header that it reaches. Outside of the source tree they lie below fusor/ and include
# each other from there, so that a project may have folders of the same names; <fusor.h> beside that folder leads into it.
# Also a script, which writes them: cmake -DROOT=... -DOUTPUT=FOLDER -P cmake/PublicHeaders.cmake
cmake_minimum_required(VERSION 3.25)

# Paths relative to `root`, fusor.h first.
function(fusor_public_headers out root)
  set(names fusor.h)
  set(unread fusor.h)
  while(unread)
    list(POP_FRONT unread name)
    file(STRINGS ${root}/${name} includes REGEX "^#include \"")
    foreach(include ${includes})
      string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" include "${include}")
      if(NOT include IN_LIST names)
        list(APPEND names ${include})
        list(APPEND unread ${include})
      endif()
    endforeach()
  endwhile()
  set(${out} ${names} PARENT_SCOPE)
endfunction()

# Leaves a file that says the same as it was, so that nothing is built again for it.
function(fusor_write_header file text)
  file(WRITE ${file}.new "${text}")
  file(COPY_FILE ${file}.new ${file} ONLY_IF_DIFFERENT)
  file(REMOVE ${file}.new)
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  fusor_public_headers(names ${ROOT})
  file(GLOB_RECURSE stale RELATIVE ${OUTPUT}/fusor ${OUTPUT}/fusor/*)
  list(REMOVE_ITEM stale ${names})
  foreach(name ${stale})
    file(REMOVE ${OUTPUT}/fusor/${name})
  endforeach()
  foreach(name ${names})
    file(READ ${ROOT}/${name} text)
    string(REPLACE "#include \"" "#include \"fusor/" text "${text}")
    fusor_write_header(${OUTPUT}/fusor/${name} "${text}")
  endforeach()
  fusor_write_header(${OUTPUT}/fusor.h "// The umbrella header: all that a user of fusor needs.\n#pragma once\n\n#include \"fusor/fusor.h\"\n")
endif()
